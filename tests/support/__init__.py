"""What several test modules share: parties, consortiums, processes, pages and ports, one module for each kind."""
