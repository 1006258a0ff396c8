"""OpenTelemetry in: bytes → spans (`decoding`) → runs (`mapping`) → their place (`placing`)."""
