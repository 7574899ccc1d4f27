"""The built-in plugins, a file each. They use only what a stranger's plugin can use."""
