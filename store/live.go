package store

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/skete-dev/skete/errs"
	"github.com/skete-dev/skete/thread"
)

// This file carries news that may be lost.

// Bounds of live news.
const (
	livePrefix      = "live." // live.<tenant>.<root>[.<call>…].= for all, ….=.<name> for one visitor
	liveAsk         = "live.ask"
	liveBytesMax    = 256 << 10
	liveQueueMax    = 512
	liveQueueBytes  = 2 << 20
	liveOutgoingMax = 1024
	liveVisitorsMax = 4096
	liveCallTimeout = 5 * time.Second
)

// Live carries news that is not in any log, between those who make it and those
// who watch: in this process directly, and over plain NATS subjects to the other
// servers of an external NATS. It is a supervisor.Wire. News may be lost.
type Live struct {
	c liveConfig

	mu       sync.RWMutex // guards what follows
	visitors map[liveKey]map[*liveVisitor]struct{}
	count    int
	keepers  map[*liveKeeper]struct{}
	asked    bool           // there is a subscription of liveAsk
	outgoing chan *nats.Msg // nil = nothing has been sent yet
}

// liveKeeper has what is on its way already.
type liveKeeper struct {
	key   liveKey
	recap func(join func(pieces [][]byte))
}

// liveAsked is the message by which a visitor asks the other servers for what is on its way.
type liveAsked struct {
	Tenant string    `json:"tenant"`
	Root   thread.ID `json:"root"`
	Name   string    `json:"name"` // of the visitor
}

type liveKey struct {
	tenant string
	id     thread.ID
}

// liveVisitor is one who watches, with what it has not seen yet.
type liveVisitor struct {
	visit func(data []byte, lost int)
	wake  chan struct{}
	stop  chan struct{}

	mu sync.Mutex // guards what follows
	// behind are threads of which it has still to get a recap: what is published before is in there.
	behind map[thread.ID]struct{}
	queue  [][]byte
	bytes  int
	lost   int
}

// liveConfig of a Live.
type liveConfig struct {
	// NC reaches the other servers, without echo; nil = there are none.
	NC   *nats.Conn
	Done <-chan struct{} // ends all visits
	// Go runs what must have ended before NC is closed.
	Go  func(func())
	Log *slog.Logger
}

// newLive returns a Live.
func newLive(c liveConfig) *Live {
	return &Live{c: c, visitors: map[liveKey]map[*liveVisitor]struct{}{}, keepers: map[*liveKeeper]struct{}{}}
}

// Publish sends news about a thread to those who watch it or one above it. It
// never blocks: who is slow loses. News over 256 KB is dropped. data may be
// used again.
func (l *Live) Publish(tenant string, id thread.ID, data []byte) {
	if len(data) > liveBytesMax {
		l.c.Log.Warn("live news dropped: too large", "bytes", len(data))
		return
	}
	data = bytes.Clone(data)
	l.deliver(tenant, id, data)
	if l.c.NC != nil {
		l.send(tenant, id, ".=", data)
	}
}

// Keep calls recap for each visitor that comes to a thread or one above it. recap calls join
// once, with what is on its way already; what this server publishes about the thread goes to
// that visitor from then on. So nothing is left out or told twice if recap and those who
// publish hold one lock. cancel may be repeated.
func (l *Live) Keep(tenant string, id thread.ID, recap func(join func(pieces [][]byte))) (cancel func()) {
	k := &liveKeeper{liveKey{tenant, id}, recap}
	l.mu.Lock()
	l.keepers[k] = struct{}{}
	first := l.c.NC != nil && !l.asked
	l.asked = l.asked || first
	l.mu.Unlock()
	if first {
		_, err := l.c.NC.Subscribe(liveAsk, l.answer)
		if err == nil {
			err = l.flush()
		}
		if err != nil {
			l.c.Log.Warn("visitors of other servers hear nothing of what is on its way already", "err", err)
		}
	}
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.keepers, k)
	}
}

// answer sends to a visitor of another server.
func (l *Live) answer(m *nats.Msg) {
	var who liveAsked
	if json.Unmarshal(m.Data, &who) != nil || strings.ContainsAny(who.Name, ".*> ") || who.Name == "" {
		return
	}
	l.mu.RLock()
	keepers := l.beneath(liveKey{who.Tenant, who.Root})
	l.mu.RUnlock()
	for _, k := range keepers {
		k.recap(func(pieces [][]byte) {
			for _, data := range pieces {
				l.send(who.Tenant, who.Root, ".=."+who.Name, data)
			}
		})
	}
}

// beneath are the keepers of a thread and of those beneath it. Preconditions: mu is held.
func (l *Live) beneath(root liveKey) (list []*liveKeeper) {
	for k := range l.keepers {
		if k.key.tenant == root.tenant && (k.key.id == root.id || strings.HasPrefix(string(k.key.id), string(root.id)+"/")) {
			list = append(list, k)
		}
	}
	return list
}

func (l *Live) deliver(tenant string, id thread.ID, data []byte) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	for at := id; at != ""; at, _ = at.Parent() {
		for v := range l.visitors[liveKey{tenant, at}] {
			v.news(id, data)
		}
	}
}

// send hands news to the one who writes to the network, or drops it.
func (l *Live) send(tenant string, id thread.ID, to string, data []byte) {
	name, err := liveSubject(tenant, id)
	if err != nil {
		return
	}
	l.mu.Lock()
	if l.outgoing == nil {
		l.outgoing = make(chan *nats.Msg, liveOutgoingMax)
		out := l.outgoing
		l.c.Go(func() { l.write(out) })
	}
	l.mu.Unlock()
	select {
	case l.outgoing <- &nats.Msg{Subject: name + to, Data: data}:
	default:
	}
}

func (l *Live) write(out <-chan *nats.Msg) {
	for {
		select {
		case m := <-out:
			_ = l.c.NC.PublishMsg(m) // lossy: without a connection it is lost
		case <-l.c.Done:
			return
		}
	}
}

func liveSubject(tenant string, id thread.ID) (string, error) {
	enc, err := encodeTenant(tenant)
	if err != nil {
		return "", err
	}
	path, err := encodeKey(string(id))
	return livePrefix + enc + "." + path, err
}

// Subscribe visits, one after the other and in order, what is published about a
// thread and those beneath it; first what is on its way already, if it is kept. What
// another server keeps may come behind the first that it publishes. A slow visitor loses
// the oldest; lost says how many before this one. cancel may be repeated and does not wait
// for a visit that is under way; no other begins.
func (l *Live) Subscribe(tenant string, root thread.ID, visit func(data []byte, lost int)) (cancel func(), err error) {
	if _, err := thread.ParseID(string(root)); err != nil {
		return nil, err
	}
	name, err := liveSubject(tenant, root)
	if err != nil {
		return nil, err
	}
	v := &liveVisitor{visit: visit, wake: make(chan struct{}, 1), stop: make(chan struct{})}
	keepers, err := l.add(liveKey{tenant, root}, v)
	if err != nil {
		return nil, err
	}
	leave := func() { l.remove(liveKey{tenant, root}, v) }
	if l.c.NC != nil {
		// Our own do not come back: the connection has no echo.
		sub, err := l.subscribe(name, liveAsked{tenant, root, rand.Text()}, v)
		if err != nil {
			leave()
			return nil, classify(err, "watch live news")
		}
		leave = func() { _ = sub.Unsubscribe(); l.remove(liveKey{tenant, root}, v) }
	}
	for _, k := range keepers {
		k.recap(func(pieces [][]byte) { v.join(k.key.id, pieces) })
	}
	l.c.Go(func() { v.run(l.c.Done) })
	return sync.OnceFunc(func() { leave(); close(v.stop) }), nil
}

// subscribe lets a visitor hear the other servers, and asks them for what is on its way already.
func (l *Live) subscribe(subject string, who liveAsked, v *liveVisitor) (*nats.Subscription, error) {
	ask, err := json.Marshal(who)
	if err != nil {
		return nil, err
	}
	sub, err := l.c.NC.Subscribe(subject+".>", func(m *nats.Msg) {
		if strings.HasSuffix(m.Subject, ".=") || strings.HasSuffix(m.Subject, ".=."+who.Name) {
			v.push(m.Data)
		}
	})
	if err != nil {
		return nil, err
	}
	if err = l.flush(); err == nil {
		err = l.c.NC.Publish(liveAsk, ask)
	}
	if err != nil {
		_ = sub.Unsubscribe()
	}
	return sub, err
}

// flush waits until the network's server knows of all subscriptions.
func (l *Live) flush() error {
	ctx, done := context.WithTimeout(context.Background(), liveCallTimeout)
	defer done()
	return l.c.NC.FlushWithContext(ctx)
}

// add makes a visitor known, and returns those that have a recap for it.
func (l *Live) add(key liveKey, v *liveVisitor) ([]*liveKeeper, error) {
	select {
	case <-l.c.Done:
		return nil, errs.New(errs.Unavailable, "the store was closed")
	default:
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.count >= liveVisitorsMax {
		return nil, errs.New(errs.Limit, "%d watch live news already", l.count)
	}
	l.count++
	if l.visitors[key] == nil {
		l.visitors[key] = map[*liveVisitor]struct{}{}
	}
	l.visitors[key][v] = struct{}{}
	keepers := l.beneath(key)
	v.behind = make(map[thread.ID]struct{}, len(keepers))
	for _, k := range keepers {
		v.behind[k.key.id] = struct{}{}
	}
	return keepers, nil
}

func (l *Live) remove(key liveKey, v *liveVisitor) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.count--
	if delete(l.visitors[key], v); len(l.visitors[key]) == 0 {
		delete(l.visitors, key)
	}
}

// join pushes what is on its way already. What is published about the thread comes behind it.
func (v *liveVisitor) join(id thread.ID, pieces [][]byte) {
	for _, data := range pieces {
		v.push(data)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.behind, id)
}

// news pushes what is published about a thread of this server.
func (v *liveVisitor) news(id thread.ID, data []byte) {
	v.mu.Lock()
	_, behind := v.behind[id]
	v.mu.Unlock()
	if !behind {
		v.push(data)
	}
}

func (v *liveVisitor) push(data []byte) {
	v.mu.Lock()
	v.queue, v.bytes = append(v.queue, data), v.bytes+len(data)
	for len(v.queue) > liveQueueMax || v.bytes > liveQueueBytes {
		v.bytes -= len(v.queue[0])
		v.queue[0] = nil
		v.queue = v.queue[1:]
		v.lost++
	}
	v.mu.Unlock()
	select {
	case v.wake <- struct{}{}:
	default:
	}
}

// take returns the oldest that was not seen.
func (v *liveVisitor) take() (data []byte, lost int, ok bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.queue) == 0 {
		return nil, 0, false
	}
	data, lost = v.queue[0], v.lost
	v.queue[0] = nil
	v.queue, v.bytes, v.lost = v.queue[1:], v.bytes-len(data), 0
	return data, lost, true
}

func (v *liveVisitor) run(done <-chan struct{}) {
	for {
		select {
		case <-v.stop:
			return
		case <-done:
			return
		default:
		}
		if data, lost, ok := v.take(); ok {
			v.visit(data, lost)
			continue
		}
		select {
		case <-v.wake:
		case <-v.stop:
			return
		case <-done:
			return
		}
	}
}
