"""Read-only questions of the command line and the page: plan, check, why, import and tables.

`offline` runs the functions of the operator on objects that were listed once; it reads servers and writes nothing.
"""
