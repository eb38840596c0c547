"""Alarms: detect from final panes that a metric has moved from its baseline."""
