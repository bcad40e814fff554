"""The repository's Markdown: pages, links, anchors."""
