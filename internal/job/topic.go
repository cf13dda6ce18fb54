package job

import "cutroom/internal/db"

// Topic announces every change of a job that its owner can see.
func Topic(id string) string { return "job/" + id }

// Revoked announces to the worker of a job, on any replica, that the job was taken away
// for good.
func Revoked(id string) string { return db.ForWorkers + "revoked/" + id }
