package job

import "cutroom/internal/db"

// Topic is what every change of a job that its owner can see is announced on.
func Topic(id string) string { return "job/" + id }

// Revoked is what is announced to whoever works on a job, on any replica, when it
// was taken away for good.
func Revoked(id string) string { return db.ForWorkers + "revoked/" + id }
