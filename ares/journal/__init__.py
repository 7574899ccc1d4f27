"""What an execution remembers: its facts as stored rows, the fold over them, and the protocols of a store."""
