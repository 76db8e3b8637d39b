"""Cannot be imported, for want of a shared library."""

raise OSError("libsomething.so.12: cannot open shared object file")
