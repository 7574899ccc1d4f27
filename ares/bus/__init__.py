"""How plugins live together: actors, mailboxes, subscriptions, order and health. The only room that knows pykka."""
