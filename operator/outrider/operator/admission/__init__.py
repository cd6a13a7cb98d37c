"""What is said of a service as it is applied.

The API server says it by an admission policy, which follows from the rules here; what no policy can
say, the operator says in the status. Leaves errors to `spec` and the definitions, and refusals of
dangerous pod templates to the chart's policy on privileges.
"""
