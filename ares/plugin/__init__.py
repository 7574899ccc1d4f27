"""What a plugin is: contracts, capabilities and the protocols of the bus. No behaviour."""
