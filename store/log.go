package store

import (
	"fmt"
	"log/slog"
)

// natsLog hands what the embedded server says to our log. Its notices are for
// us at most debug: it greets and says good-bye in twenty lines.
type natsLog struct{ log *slog.Logger }

func (l *natsLog) Noticef(f string, v ...any) { l.log.Debug("nats", "says", fmt.Sprintf(f, v...)) }
func (l *natsLog) Warnf(f string, v ...any)   { l.log.Warn("nats", "says", fmt.Sprintf(f, v...)) }
func (l *natsLog) Errorf(f string, v ...any)  { l.log.Error("nats", "says", fmt.Sprintf(f, v...)) }
func (l *natsLog) Debugf(string, ...any)      {}
func (l *natsLog) Tracef(string, ...any)      {}

// Fatalf must not end the process: sandboxes depend on it.
func (l *natsLog) Fatalf(f string, v ...any) { l.log.Error("nats", "says", fmt.Sprintf(f, v...)) }
