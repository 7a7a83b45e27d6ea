"""Parts of the op table that are long: C++ text, and rows as data that ops.py enters."""
