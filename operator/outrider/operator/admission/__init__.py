"""What is said of a service as it is applied: advice, and refusals of dangerous pod templates.

The API server says it by admission policies, which follow from the rules here; what no policy can
say, the operator says in the status. Leaves errors to `spec` and the definitions.
"""
