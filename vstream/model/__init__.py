"""Values of the domain: topology, stream configurations, mappings, artifacts. No behaviour beyond views of themselves."""
