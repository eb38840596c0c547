"""The interface for an application on a device."""
