package main

import (
	"context"
	"slices"
	"sync"
	"time"
)

// shares notes which member of a group has which partitions.
type shares struct {
	mutex sync.Mutex
	parts []map[int32]bool
}

func newShares(members int) *shares {
	made := &shares{}
	for range members {
		made.parts = append(made.parts, map[int32]bool{})
	}
	return made
}

func (known *shares) add(member int, partitions []int32) {
	known.mutex.Lock()
	defer known.mutex.Unlock()
	for _, one := range partitions {
		known.parts[member][one] = true
	}
}

func (known *shares) remove(member int, partitions []int32) {
	known.mutex.Lock()
	defer known.mutex.Unlock()
	for _, one := range partitions {
		delete(known.parts[member], one)
	}
}

// set replaces all partitions of a member.
func (known *shares) set(member int, partitions []int32) {
	known.mutex.Lock()
	known.parts[member] = map[int32]bool{}
	known.mutex.Unlock()
	known.add(member, partitions)
}

func (known *shares) held() [][]int32 {
	known.mutex.Lock()
	defer known.mutex.Unlock()
	all := [][]int32{}
	for _, part := range known.parts {
		mine := []int32{}
		for one := range part {
			mine = append(mine, one)
		}
		slices.Sort(mine)
		all = append(all, mine)
	}
	return all
}

// await waits until each of the first members has partitions, and all together have so many.
func (known *shares) await(ctx context.Context, members int, partitions int) error {
	for ctx.Err() == nil {
		total, isShared := 0, true
		for _, mine := range known.held()[:members] {
			total += len(mine)
			isShared = isShared && len(mine) > 0
		}
		if isShared && total == partitions {
			return nil
		}
		time.Sleep(20 * time.Millisecond)
	}
	return ctx.Err()
}
