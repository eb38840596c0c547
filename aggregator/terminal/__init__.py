"""What commands share: options, formats, output."""
