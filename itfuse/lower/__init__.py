"""Stages -> C++ text and packed state blocks. No compiler, no device."""
