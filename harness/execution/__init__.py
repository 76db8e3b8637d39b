"""Child processes that variants run in: started, limited, followed and ended."""
