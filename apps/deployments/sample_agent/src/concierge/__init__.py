"""A small agent with tools, a subgraph, an approval step and streamed answers."""
