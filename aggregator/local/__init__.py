"""One machine without servers, and the demo."""
