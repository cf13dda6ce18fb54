package job

// Topic is what every change of a job that its owner can see is announced on.
func Topic(id string) string { return "job/" + id }
