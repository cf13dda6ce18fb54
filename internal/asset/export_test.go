package asset

// Waiters returns how many callers wait for the download of the key.
func (s *Service) Waiters(key string) int {
	k, err := ParseKey(key)
	if err != nil {
		return 0
	}
	s.cache.mu.Lock()
	defer s.cache.mu.Unlock()
	if f := s.cache.flights[k]; f != nil {
		return f.waiters
	}
	return 0
}
