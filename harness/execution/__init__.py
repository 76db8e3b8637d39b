"""Any callable in a child process, under limits; real libraries in environments of their own."""
