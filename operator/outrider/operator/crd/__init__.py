"""The custom resource definitions, generated from `spec`."""
