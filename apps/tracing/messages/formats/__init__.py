"""The formats of messages, one module each: its content blocks, and where a payload has them.

A module has `BLOCKS` by the block's `type`, or `SHAPES` by a key of blocks without a type, and
`find_messages` for the payloads that only this format has. Blocks of all formats are read in every
message, because libraries pass those of providers through.
"""
