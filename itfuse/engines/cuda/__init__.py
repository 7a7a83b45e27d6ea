def status(): return ("cuda", False, "not yet", {})
