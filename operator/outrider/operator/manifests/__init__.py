"""Kubernetes objects of a service, as plain dicts made fresh each time. Pure; applies nothing."""
