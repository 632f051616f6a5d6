"""The controllers of the dns operator: `setup` is the table of what wakes which of them.

provider ──► cluster ──► instance ──► pods of servers
                            │
      records ──► zone ─────┘ ──► copies on servers ──► status of zone, records, instance
"""
