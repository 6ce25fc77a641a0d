"""Every compiled kernel and every private torch call, each with a twin in plain torch for any device."""
