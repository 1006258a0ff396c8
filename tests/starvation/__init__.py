"""One organization attacks the platform while another one uses it: `make test-starvation`."""
