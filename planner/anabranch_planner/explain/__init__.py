"""Plans for people: as data, text and graphs; differences; detours."""
