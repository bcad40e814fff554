"""Plans made from running ones: sessions, revisions within an epoch, remaining queries."""
