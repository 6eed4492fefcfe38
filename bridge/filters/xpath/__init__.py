"""XPath 1.0, for the XPATH of conditions."""
