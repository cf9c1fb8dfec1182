-- How far the job of a task has come, as its worker last said, in JSON.
ALTER TABLE punctual_hand_overs ADD COLUMN progress text;
