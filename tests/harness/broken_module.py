"""A module that fails to import, as without a shared library."""

raise OSError("libsomething.so.12: cannot open shared object file")
