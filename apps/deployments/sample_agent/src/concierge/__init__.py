"""A small agent: tools, a subgraph, an approval, streamed answers."""
