"""HTTP around the endpoints: routing, CORS, proxying to custom routes."""
