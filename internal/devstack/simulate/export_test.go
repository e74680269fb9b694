package simulate

// RunOn is Run on a store that the test can look into.
var RunOn = runOn

// NeededDedupe is the dedupe window that Run decides by.
var NeededDedupe = neededDedupe
