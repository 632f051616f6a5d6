"""What a namespace may consume: LimitRanges and ResourceQuotas, in force in namespaces that have them.

`limit_ranges` gives containers their defaults and holds them to their bounds, `resource_quotas` holds what a namespace
uses in all to its quotas, `pod_resources` adds up what the containers of a pod ask for. These are pure; `quota_usage`
keeps what is used with every change. `admission` and the controller of quota statuses ask them.
"""
