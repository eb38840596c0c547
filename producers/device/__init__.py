"""What an application on a device talks to."""
