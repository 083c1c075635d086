"""Cards, dialogs and tables that pages are built of."""
