-- Jobs in managed partitions are born held, for rota to place and release. Read by slurmctld, next
-- to slurm.conf; needs JobSubmitPlugins=lua. `render_hook` in hook.py fills in the constants.
--
-- Marks. admin_comment is "rota:held" on jobs that wait for rota. Only operators can change it: Slurm
-- refuses a user's update of it, and also the whole update of a user if this script changes it on the
-- way (Slurm 22.05). So that a user has held a job himself stands in the job's comment instead, as
-- its first word "rota:user-held". A user who forges or removes that word has held or released his
-- own job, no more; it stays at priority 0 and rota decides.
--
-- What Slurm 22.05 lets scripts do in slurm_job_modify, found by trying:
--  * job_desc has what the request changes. Priority is 0 for `hold`, INFINITE for `release`, NO_VAL
--    if it is not changed. Comment, partition and admin_comment are nil if they are not changed.
--  * job_rec can be read (priority, comment, admin_comment, partition, job_state, user_id). Writing
--    to it gives no error and has no effect. The reason of a hold cannot be read.
--  * An empty comment in job_desc means "leave it", so a comment cannot be cleared here.
--  * A change of nice makes Slurm compute the priority afresh, which releases a held job, even if
--    priority = 0 is set in the same request.
--  * scontrol requeue and requeuehold do not call it.

local MANAGED = { "rota" }
local HEARTBEAT = "/var/lib/rota/heartbeat"
local TIMEOUT_S = 300
local OPERATORS = { 0 }

local HELD = "rota:held"
local USER_HELD = "rota:user-held"
local RELEASED = "rota:user-released"
local MOVE = "rota starts the jobs of this partition in their turn: submit the job there anew"
local NO_VAL = 4294967294
local INFINITE = 4294967295

local managed, operators = {}, {}
for _, name in ipairs(MANAGED) do managed[name] = true end
for _, uid in ipairs(OPERATORS) do operators[uid] = true end

-- Whether rota is alive: it writes the time into a file again and again. A time to come is no sign of
-- life, or a clock that once was wrong would hold jobs for ever.
local function is_alive()
   local file = io.open(HEARTBEAT, "r")
   if file == nil then return false end
   local text = file:read(64)
   file:close()
   local beat = text and tonumber(text:match("^%s*(%d+%.?%d*)%s*$"))
   return beat ~= nil and math.abs(os.time() - beat) <= TIMEOUT_S
end

local function default_partition(partitions)
   for _, partition in pairs(partitions) do
      if partition.flag_default == 1 then return partition.name end
   end
   return nil
end

-- Of a list such as "rota,free" one managed partition is enough: otherwise a list would be a way
-- around the scheduler.
local function is_managed(names)
   for name in (names or ""):gmatch("[^,]+") do
      if managed[name] then return true end
   end
   return false
end

local function starts_with_word(text, word)
   return text == word or text:sub(1, #word + 1) == word .. " "
end

local function is_user_held(comment)
   return starts_with_word(comment or "", USER_HELD)
end

-- The comment without our word.
local function bare(comment)
   for _, word in ipairs({ USER_HELD, RELEASED }) do
      if starts_with_word(comment, word) then return comment:sub(#word + 2) end
   end
   return comment
end

local function with_user_hold(comment)
   local rest = bare(comment or "")
   return rest == "" and USER_HELD or USER_HELD .. " " .. rest
end

-- Slurm takes an empty comment for none given, so something must stand there.
local function without_user_hold(comment)
   local rest = bare(comment or "")
   return rest == "" and RELEASED or rest
end

local function submit(job_desc, partitions)
   local names = job_desc.partition
   if names == nil or names == "" then names = default_partition(partitions) end
   if not is_managed(names) or not is_alive() then return end
   local held_by_user = job_desc.priority == 0
   job_desc.admin_comment = HELD
   if held_by_user then job_desc.comment = with_user_hold(job_desc.comment) end
   job_desc.priority = 0  -- last: without its mark nobody would release the job
end

local function modify(job_desc, job_rec, uid)
   -- Who may change a job and does not own it is an administrator.
   if uid ~= job_rec.user_id or operators[uid] then return end
   if job_rec.job_state ~= 0 then return end  -- it runs
   local enters = not is_managed(job_rec.partition) and is_managed(job_desc.partition)
   if not starts_with_word(job_rec.admin_comment or "", HELD) then
      -- It was never rota's, or was let go. What comes in by such a move cannot be marked, and would
      -- be started before all that wait.
      return enters and is_alive() and MOVE or nil
   end
   local is_held = job_rec.priority == 0
   local user_held = is_user_held(job_rec.comment)
   if not is_managed(job_desc.partition or job_rec.partition) then
      -- It leaves rota, and nobody else would release it.
      if is_held and not user_held and job_desc.priority == NO_VAL then
         job_desc.priority = INFINITE
      end
      return
   end
   local alive = is_alive()
   if job_desc.priority == 0 then
      job_desc.comment = with_user_hold(job_desc.comment or job_rec.comment)
      user_held = true
   elseif job_desc.priority == INFINITE then
      if user_held then
         job_desc.comment = without_user_hold(job_desc.comment or job_rec.comment)
      end
      user_held = false
      if is_held and alive then job_desc.priority = 0 end
   elseif user_held and job_desc.comment ~= nil then
      job_desc.comment = with_user_hold(job_desc.comment)
   end
   if enters and alive then
      job_desc.priority = 0
      is_held = true
   end
   if is_held and (alive or user_held) then job_desc.nice = NO_VAL end
end

-- Whatever goes wrong here, the job goes its way as if there were no script. What is returned is
-- why a request is refused.
local function guarded(what, ...)
   local fine, said = pcall(what, ...)
   if not fine then
      pcall(slurm.log_error, "rota: %s; the job is left alone", tostring(said))
   elseif said ~= nil then
      pcall(slurm.log_user, "%s", said)
      return slurm.ESLURM_ACCESS_DENIED or slurm.ERROR  -- 22.05 does not show users the words
   end
   return slurm.SUCCESS
end

function slurm_job_submit(job_desc, partitions, uid)
   return guarded(submit, job_desc, partitions)
end

function slurm_job_modify(job_desc, job_rec, partitions, uid)
   return guarded(modify, job_desc, job_rec, uid)
end

return slurm.SUCCESS
