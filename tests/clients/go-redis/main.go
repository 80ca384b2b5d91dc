// go-redis, unmodified: what an application does. Arguments: port, version of the protocol.
// The first wrong answer ends it with an error.
// It prints RESTART when the server may be killed, and goes on when it reads a line.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

var ctx = context.Background()

var addBelow = redis.NewScript(`
	local now = redis.call('INCRBY', KEYS[1], ARGV[1])
	if now > tonumber(ARGV[2]) then
		redis.call('DECRBY', KEYS[1], ARGV[1])
		return -1
	end
	return now`)

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func value[T any](value T, err error) T {
	check(err)
	return value
}

func equal[T any](got, expected T) {
	if left, right := fmt.Sprintf("%#v", got), fmt.Sprintf("%#v", expected); left != right {
		panic(left + " is not " + right)
	}
}

func none(err error) {
	if !errors.Is(err, redis.Nil) {
		panic(fmt.Sprint("not nil: ", err))
	}
}

func cache(client *redis.Client) {
	none(client.Get(ctx, "page").Err())
	check(client.Set(ctx, "page", "text", 100*time.Second).Err())
	equal(value(client.Get(ctx, "page").Result()), "text")
	if left := value(client.TTL(ctx, "page").Result()); left <= 90*time.Second {
		panic(left)
	}
	equal(value(client.SetNX(ctx, "page", "other", 0).Result()), false)
	equal(value(client.MGet(ctx, "page", "none").Result()), []any{"text", nil})
	equal(value(client.HSet(ctx, "user", "name", "Ada", "born", 1815).Result()), 2)
	equal(value(client.HGetAll(ctx, "user").Result()), map[string]string{"name": "Ada", "born": "1815"})
	check(client.ZAdd(ctx, "scores", redis.Z{Score: 1.5, Member: "a"}, redis.Z{Score: 0.5, Member: "b"}).Err())
	equal(value(client.ZRangeWithScores(ctx, "scores", 0, -1).Result()), []redis.Z{{Score: 0.5, Member: "b"}, {Score: 1.5, Member: "a"}})
	if err := client.Incr(ctx, "page").Err(); !strings.Contains(err.Error(), "not an integer") {
		panic(err)
	}
	equal(value(client.Del(ctx, "page", "user", "scores").Result()), 3)
}

func watchedCounter(client *redis.Client) {
	var group sync.WaitGroup
	for range 5 {
		group.Add(1)
		go func() {
			defer group.Done()
			for left := 20; left > 0; {
				err := client.Watch(ctx, func(tx *redis.Tx) error {
					now, err := tx.Get(ctx, "counter").Int()
					if err != nil && !errors.Is(err, redis.Nil) {
						return err
					}
					_, err = tx.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
						pipe.Set(ctx, "counter", now+1, 0)
						return nil
					})
					return err
				}, "counter")
				if err == nil {
					left--
				} else if !errors.Is(err, redis.TxFailedErr) {
					panic(err)
				}
			}
		}()
	}
	group.Wait()
	equal(value(client.Get(ctx, "counter").Int()), 100)
}

func bulkLoad(client *redis.Client) {
	check2(client.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for n := range 10000 {
			pipe.Set(ctx, fmt.Sprint("bulk:", n), n, 0)
		}
		return nil
	}))
	found := map[string]bool{}
	keys := client.Scan(ctx, 0, "bulk:*", 1000).Iterator()
	for keys.Next(ctx) {
		found[keys.Val()] = true
	}
	check(keys.Err())
	equal(len(found), 10000)
	var all []string
	for key := range found {
		all = append(all, key)
	}
	equal(value(client.Unlink(ctx, all...).Result()), 10000)
}

func check2[T any](_ T, err error) {
	check(err)
}

func messages(client *redis.Client) {
	subscriber := client.Subscribe(ctx, "news")
	check(subscriber.PSubscribe(ctx, "n*"))
	for range 2 {
		check2(subscriber.Receive(ctx))
	}
	for n := range 100 {
		equal(value(client.Publish(ctx, "news", n).Result()), 2)
	}
	for n := range 200 {
		message := value(subscriber.ReceiveMessage(ctx))
		equal(message.Channel+" "+message.Payload, fmt.Sprint("news ", n/2))
	}
	check(subscriber.Close())
	for deadline := time.Now().Add(5 * time.Second); value(client.Publish(ctx, "news", "").Result()) > 0; {
		if time.Now().After(deadline) {
			panic("the subscriber is still there")
		}
	}
}

func queue(client *redis.Client) {
	var got, expected []string
	done := make(chan bool)
	go func() {
		for len(got) < 200 {
			got = append(got, value(client.BRPop(ctx, 10*time.Second, "jobs").Result())[1])
		}
		done <- true
	}()
	for n := range 200 {
		check(client.LPush(ctx, "jobs", n).Err())
		expected = append(expected, strconv.Itoa(n))
	}
	<-done
	equal(got, expected)
	none(client.BLPop(ctx, time.Second, "jobs").Err())
}

func streamGroup(client *redis.Client) {
	check(client.XGroupCreateMkStream(ctx, "log", "readers", "$").Err())
	var group sync.WaitGroup
	var lock sync.Mutex
	var seen, expected []int
	for _, name := range []string{"one", "two"} {
		group.Add(1)
		go func() {
			defer group.Done()
			for {
				streams, err := client.XReadGroup(ctx, &redis.XReadGroupArgs{
					Group: "readers", Consumer: name, Streams: []string{"log", ">"},
					Count: 10, Block: 500 * time.Millisecond,
				}).Result()
				if errors.Is(err, redis.Nil) {
					return
				}
				check(err)
				for _, message := range streams[0].Messages {
					lock.Lock()
					seen = append(seen, value(strconv.Atoi(message.Values["n"].(string))))
					lock.Unlock()
					equal(value(client.XAck(ctx, "log", "readers", message.ID).Result()), 1)
				}
			}
		}()
	}
	for n := range 200 {
		check(client.XAdd(ctx, &redis.XAddArgs{Stream: "log", Values: []any{"n", n}}).Err())
		expected = append(expected, n)
	}
	group.Wait()
	slices.Sort(seen)
	equal(seen, expected)
	equal(value(client.XPending(ctx, "log", "readers").Result()).Count, 0)
}

func script(client *redis.Client) {
	run := func(by int) int {
		return value(addBelow.Run(ctx, client, []string{"limit"}, by, 5).Int())
	}
	equal(run(3), 3)
	equal(run(3), -1)
	check(client.ScriptFlush(ctx).Err())
	// It meets NOSCRIPT, and sends the text.
	equal(run(2), 5)
}

func largeValues(client *redis.Client) {
	large := strings.Repeat("pando", 1<<18)
	check(client.Set(ctx, "large", large, 0).Err())
	if value(client.Get(ctx, "large").Result()) != large {
		panic("the value has changed")
	}
	equal(value(client.StrLen(ctx, "large").Result()), int64(len(large)))
	equal(value(client.Del(ctx, "large").Result()), 1)
}

func restart(client *redis.Client) {
	acknowledged := value(client.Incr(ctx, "kept").Result())
	fmt.Println("RESTART")
	var restarted atomic.Bool
	go func() {
		check2(bufio.NewReader(os.Stdin).ReadString('\n'))
		restarted.Store(true)
	}()
	for after := 0; after < 20; {
		now, err := client.Incr(ctx, "kept").Result()
		if err != nil {
			time.Sleep(20 * time.Millisecond)
			continue
		}
		if now <= acknowledged {
			panic(fmt.Sprint(now, " after ", acknowledged))
		}
		acknowledged = now
		if restarted.Load() {
			after++
		}
	}
}

// A client with a cache on its own side, beside another that writes.
type cached struct {
	client, writer *redis.Client
	keys           []string
}

func newCached(writer *redis.Client) *cached {
	client := redis.NewClient(&redis.Options{
		Addr: writer.Options().Addr, Protocol: 3,
		ClientSideCacheConfig: &redis.ClientSideCacheConfig{},
	})
	var keys []string
	for n := range 20 {
		keys = append(keys, fmt.Sprint("cached:", n))
	}
	return &cached{client, writer, keys}
}

func (c *cached) write(value string) {
	for _, key := range c.keys {
		check(c.writer.Set(ctx, key, value, 0).Err())
	}
}

func (c *cached) isEverywhere(value string) bool {
	for _, key := range c.keys {
		got, err := c.client.Get(ctx, key).Result()
		if errors.Is(err, redis.Nil) {
			got = "nothing"
		}
		if got != value {
			return false
		}
	}
	return true
}

// Waits until no value is stale: what was told is on its way.
func (c *cached) becomes(value string) {
	for deadline := time.Now().Add(20 * time.Second); !c.isEverywhere(value); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			panic("stale: not " + value)
		}
	}
}

func (c *cached) asked() string {
	for line := range strings.Lines(value(c.writer.Info(ctx, "commandstats").Result())) {
		if strings.HasPrefix(line, "cmdstat_get:") {
			return strings.Split(line, ",")[0]
		}
	}
	panic("nobody asked")
}

// What is read comes from the cache; what another changes does not.
func (c *cached) check(name string) {
	for n := range 20 {
		c.write(fmt.Sprint(name, n))
		c.becomes(fmt.Sprint(name, n))
	}
	before := c.asked()
	c.becomes(name + "19")
	equal(c.asked(), before)
	equal(value(c.writer.Del(ctx, c.keys...).Result()), 20)
	c.becomes("nothing")
	c.write("kept " + name)
	c.becomes("kept " + name)
}

func main() {
	protocol := value(strconv.Atoi(os.Args[2]))
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:" + os.Args[1], Protocol: protocol})
	check(client.FlushAll(ctx).Err())
	cache(client)
	watchedCounter(client)
	bulkLoad(client)
	messages(client)
	queue(client)
	streamGroup(client)
	script(client)
	largeValues(client)
	cache := newCached(client)
	if protocol == 3 {
		cache.check("before")
	}
	restart(client)
	if protocol == 3 {
		// What was kept in the cache of a connection that is gone may be stale now.
		cache.write("changed")
		cache.becomes("changed")
		cache.check("after")
	}
	check(cache.client.Close())
	check(client.Close())
}
