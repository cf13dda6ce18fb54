package diskcache

// Waiters returns how many callers wait for the load of a file.
func (c *Cache) Waiters(path string) int {
	c.flightsMu.Lock()
	defer c.flightsMu.Unlock()
	if f := c.flights[path]; f != nil {
		return f.waiters
	}
	return 0
}
