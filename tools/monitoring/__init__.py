"""Recording rules, alerts and dashboards of the chart, written by code.

`queries` is PromQL, `rules` and `dashboards` are what is asked; leaves Prometheus and Grafana to
those who run them.
"""
