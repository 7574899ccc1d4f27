"""What authors of workflows, plugins and stores use in their own tests."""
