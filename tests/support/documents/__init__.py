"""The repository's Markdown documents: pages, links, anchors."""
