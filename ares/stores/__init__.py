"""Where executions are kept. Each store is imported by its path, and only when it is used."""
