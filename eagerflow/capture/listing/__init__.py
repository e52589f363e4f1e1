"""Looking at graphs: text, pictures, costs, and what differs between two."""
